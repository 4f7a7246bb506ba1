"""The paper's Figure 4: robots, and policies learned for them."""
