"""The table of wire types: what every type of a provider's items and parts is.

A file for each provider has the rows, whose fields are those of `Kind`. `reading` reads blocks by their
rows. A type without a row pairs by its name: `X_call` or `X_use` is answered by `X_output`, `X_result` or
`X_response`.
"""
