"""Generic input and output: nothing here knows of diffusion, experiments or stages.

- `atomic`: write a file whole or not at all; use a folder alone; check the room on the disk.
- `checksums`, `state_file`: checksums of finished pieces and the state of interrupted work.
- `reading`: guards for every file that comes from outside, PyTorch files included.
- `fetch`: take a published file or download it, check it, and remember its sha256.
- `archives`, `lmdb_file`: unpack published archives once; what is inside a tar, a zip or an LMDB.
- `image_files`: the images of a folder, a zip or a tar.
"""
