"""Scripts that train and judge the bundled model `emotion2vec_mini`; not part of the package."""
