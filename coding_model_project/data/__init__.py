"""Problems: our schema, loaders of public sets, governance of their use, and training data."""
