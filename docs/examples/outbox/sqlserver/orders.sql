-- A table of an application, for the examples.
CREATE TABLE dbo.orders (id nvarchar(100) NOT NULL PRIMARY KEY, status nvarchar(20) NOT NULL);
INSERT INTO dbo.orders VALUES (N'o-1', N'new'), (N'o-2', N'new');
