"""What an experiment takes on a GPU: counted on tensors without storage, never measured."""
