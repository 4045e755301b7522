--- ones: sample data.
return {
  calls = {{shape = {3, 4}}}, empty = {{shape = {0, 4}}}, scalar = {{shape = {}}}, special = false,
  large = {shape = {100003}}, expect = {{{shape = {2}}, {1, 1}}},
}
