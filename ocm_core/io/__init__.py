"""Generic input and output: nothing here knows of diffusion, experiments or stages.

- `atomic`: `replacing` and `write_text` write a file whole or not at all; `alone_in` lets one
  process at a time work in a folder.
- `digests`: `sha256_of` a file, or several digests in one pass (`digests_of`).
- `download`: `download` resumes what was interrupted; `byte_bar` shows its progress; a web page
  that was saved in place of a file is refused by `refuse_web_page`.
- `lock`: `Lock` remembers the digest of each published file, and refuses one that has changed.
- `unpickle`: `open_restricted` reads PyTorch files without running code from them.
- `archives`: `locate` finds or downloads a published `Archive` and checks it; `packed`, `tars` and
  `zips` read what is inside.
- `server`: `served` offers a folder on the loopback address.
"""
