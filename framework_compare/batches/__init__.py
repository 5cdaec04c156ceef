"""How images become batches: order, decoding, cropping. Worker side."""
