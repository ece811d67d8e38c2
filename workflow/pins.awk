# Join each package of `uv pip compile --generate-hashes` with its hashes to one line. torch keeps its
# version only: it has builds for each kind of machine (+cpu, +cu130), and any of them will do.
BEGIN { print "# Written by `make pins`; uv refuses a file whose hash is not here." }
/^torch==/ { sub(/[+][a-z0-9.]*/, ""); sub(/ \\$/, ""); print; skipped = 1; next }
/^[^ ]/ { skipped = 0 }
skipped { next }
{ joined = sub(/ \\$/, ""); sub(/^ +/, " "); printf "%s%s", $0, joined ? "" : "\n" }
