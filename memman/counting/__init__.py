"""Token counting: models and their limits, counters, prices, calibration.

- `models`, `limits`, `overflow`, `lookup`: a model by any name, its limits, limits learned from refusals
- `resolution`, `validation`: the counter of a model, among those of plugins
- `counter`, `builtin`, `estimator`: counting with a cache and a fallback; the counters that always work
- `blocks`, `media`, `images`, `extras`: the cost of everything in an entry but its text
- `framing`, `tools`, `tool_prices`: the cost of everything else in a request
- `calibration`, `usage`, `pricing`: learning from the tokens that providers report, and their price
- `remote`, `failures`: counts over a network
"""
