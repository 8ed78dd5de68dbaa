"""How many trials the search needs: curves of the best found against trials and seconds."""
