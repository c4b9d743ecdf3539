"""Fed-PLT: federated splitting with private local training."""
