"""Make batches from images: order, decoding, cropping. Worker side."""
