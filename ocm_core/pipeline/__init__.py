"""The plumbing between the library and the two tools: what a stage reads, writes and depends on."""
