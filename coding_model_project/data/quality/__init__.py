"""Is a data set fit to grade by, and which of its tests tell right programs from wrong ones?"""
