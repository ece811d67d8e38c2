"""Published networks and folders of diffusers: where files are, how to read and convert them."""
