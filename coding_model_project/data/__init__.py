"""Problems: our schema, public sets, what may be used for what, and what is trained on."""
