"""Generic input and output: nothing here knows of diffusion, experiments or stages.

- `atomic`: write a file whole or not at all; use a folder alone; check the room on the disk.
- `checksums`: sha256 of files, and the checksums of finished pieces of interrupted work.
- `state_file`: save and load the state of interrupted work.
- `reading`: guards for every file that comes from outside, and formats by their first bytes.
- `archives`: find or download a published archive, check it, unpack it once.
- `members`, `lmdb_file`: what is inside a tar, a zip or an LMDB database.
- `image_files`: the images of a folder, a zip or a tar.
- `fetch`: take a published file or download it, check it, and remember its sha256.
- `unpickle`: read PyTorch files without running code from them.
"""
