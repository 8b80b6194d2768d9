module github.com/svc-relay/svc/clients/go

go 1.22
