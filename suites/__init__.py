"""What is checked: one folder for each family of laws."""
