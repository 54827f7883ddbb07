"""What a call of the model costs: the service's direct path, bare aiohttp and `openai`."""
