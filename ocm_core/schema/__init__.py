"""Parameter types. Only pydantic is imported, so that no command waits for torch in vain."""
