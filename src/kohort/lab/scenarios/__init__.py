"""What happens to groups in practice: one file each, with the registry that names them all."""
