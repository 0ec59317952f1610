# Empty dependencies file for program.
# This may be replaced when dependencies are built.
