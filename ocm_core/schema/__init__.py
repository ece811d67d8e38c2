"""Parameter types: which keys an experiment has, and which values go together.

Only pydantic is imported, so that commands that need no torch never wait for it.
"""
