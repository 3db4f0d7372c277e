module mainarch.invalid/go/mainarch

go 1.19
