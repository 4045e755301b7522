--- one_hot: sample data.
return {
  gen = {index = {below = 4}}, calls = {{index = {3}, num_classes = 4}, {index = {2, 3}, num_classes = 5}},
  empty = {{index = {0}, num_classes = 4}}, scalar = {{index = {}, num_classes = 4}},
  large = {index = {10001}, num_classes = 11},
  expect = {{{index = {2, 1}, num_classes = 3}, {{0, 1, 0}, {1, 0, 0}}}},
}
