"""What holds of the paper's claims, decided from the results, and the summary of a page.

Public: `toy_claims` and `image_claims` (each claim with its cases and verdicts), `toy_summary` and
`image_summary` (the sentences at the top of a page). `cases` says when a difference is noise.
"""
