--- cat: sample data.
return {
  calls = {{tensors = {{2, 3}, {1, 3}}}, {tensors = {{2, 3}, {2, 1}, {2, 4}}, dim = 2}, {tensors = {{5}}}},
  empty = {{tensors = {{0, 3}, {0, 3}}}, {tensors = {{2, 3}, {0, 3}}}},
  smooth = true, large = {tensors = {{317, 200}, {317, 117}}, dim = 2},
  expect = {{{tensors = {{1, 2}, {3}}}, {1, 2, 3}}},
}
