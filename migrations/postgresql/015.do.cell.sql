-- Which cell of an installation of several this database is: its position in database.cells, from 1, its name, and their number. One row at most.
CREATE TABLE IF NOT EXISTS outbox_cell (
  id       integer NOT NULL PRIMARY KEY CHECK (id = 1),
  position integer NOT NULL,
  name     text    NOT NULL,
  cells    integer NOT NULL
);
