-- What is kept of complete blocks of steps before their rows go is told apart from what is all that is left.
SELECT 1;
