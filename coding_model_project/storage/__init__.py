"""Object stores behind fsspec's URLs: s3://, gs://, https://, file://, ..."""
