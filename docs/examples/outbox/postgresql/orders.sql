-- A table of an application, for the examples.
CREATE TABLE orders (id text PRIMARY KEY, status text NOT NULL);
INSERT INTO orders VALUES ('o-1', 'new'), ('o-2', 'new');
