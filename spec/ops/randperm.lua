--- randperm: sample data.
return {
  calls = {{n = 1}, {n = 37}, {n = 100}}, empty = {{n = 0}}, special = false,
  large = {n = 100003, dtype = "i64"}, expect = {{{n = 1}, {1}}},
}
