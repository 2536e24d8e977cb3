"""From a table to a trained network: columns, encoding, rows, and what regressor and classifier share."""
