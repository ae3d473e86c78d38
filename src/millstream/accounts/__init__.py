"""Who is it, and what may it touch?"""
