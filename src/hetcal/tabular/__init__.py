"""From a table to a trained network: columns, encoding, rows, building, and the model that both classes share."""
