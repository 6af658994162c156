"""The three Ray Serve deployments: ingress → preprocess → model."""
