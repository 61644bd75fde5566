"""The tables of a result, and the parts they are merged from."""
