"""Keeps LiteLLM from the network: its import would ask for the prices of today."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
