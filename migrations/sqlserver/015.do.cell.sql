-- Which cell of an installation of several this database is: its position in database.cells, from 1, its name, and their number. One row at most.
CREATE TABLE outbox_cell (
  id       int           NOT NULL PRIMARY KEY CHECK (id = 1),
  position int           NOT NULL,
  name     nvarchar(400) NOT NULL,
  cells    int           NOT NULL
);
