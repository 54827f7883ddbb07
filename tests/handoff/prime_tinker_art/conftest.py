"""For all tests with ART."""

import os

# LiteLLM, which ART imports, would look for its prices in the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
