# What `uv pip compile --generate-hashes` prints, as requirements.txt has it. torch and torchvision
# have a build of one version for each kind of machine, so any build (+cpu, +cu130) satisfies the pin.
BEGIN { print "# Written by `make pins`. uv refuses a file whose hash is not here; torch and torchvision,"
        print "# whose builds differ from machine to machine, have versions only." }
/^torch(vision)?==/ { sub(/[+][a-z0-9.]*/, ""); sub(/ \\$/, ""); print; unhashed = 1; next }
/^[^ ]/ { unhashed = 0 }
!unhashed
