"""What training needs of a GPU's and a pod's memory, and whether it is there."""
