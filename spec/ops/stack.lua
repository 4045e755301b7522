--- stack: sample data.
return {
  calls = {
    {tensors = {{2, 3}, {2, 3}}}, {tensors = {{2, 3}, {2, 3}, {2, 3}}, dim = 2}, {tensors = {{5}}, dim = -1},
  },
  empty = {{tensors = {{0, 3}, {0, 3}}}}, scalar = {{tensors = {{}, {}}}},
  smooth = true, large = {tensors = {{317, 159}, {317, 159}}, dim = 2},
  expect = {{{tensors = {{1, 2}, {3, 4}}, dim = 2}, {{1, 3}, {2, 4}}}},
}
