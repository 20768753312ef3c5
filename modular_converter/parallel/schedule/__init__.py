"""Pipeline schedules: their orders, a simulation of their time and memory, pictures, and advice; without torch."""
