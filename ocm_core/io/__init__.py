"""Generic input and output: nothing here knows of diffusion, experiments or stages.

- `atomic`: `replacing` and `write_text` write a file whole or not at all; `alone_in` lets one
  process at a time work in a folder.
- `seals`: `seal` proves later that a finished piece is `intact`.
- `state_file`: `save_state` and `load_state` keep the state of interrupted work, and prove it.
- `disk`: `check_space` before a long piece of work; `room_for` says which disk is full.
- `digests`: `sha256_of` a file, or several digests in one pass (`digests_of`).
- `download`: `download` resumes what was interrupted; `byte_bar` shows its progress; a web page
  that was saved in place of a file is refused by `refuse_web_page`.
- `reading`: the guard at every door where bytes come in.
- `urls`: addresses as messages and records show them, without credentials.
- `lock`: `Lock` remembers the digest of each published file, and refuses one that has changed.
- `unpickle`: `open_restricted` reads PyTorch files without running code from them.
- `archives`: `locate` finds or downloads a published `Archive` and checks it; `packed`, `tars`,
  `zips` and `lmdb_index` read what is inside, `image_index` images in any order.
- `image_files`: what lies in a folder of images, or in a zip or tar of one.
- `server`: `served` offers a folder on the loopback address.
"""
