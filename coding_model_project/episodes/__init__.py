"""Episodes: samples with several model replies, independent of what generates them."""
