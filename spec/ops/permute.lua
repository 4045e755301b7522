--- permute: sample data.
return {
  calls = {{x = {3, 4}, dims = {2, 1}}, {x = {2, 3, 4}, dims = {3, 1, 2}}},
  empty = {{x = {0, 4}, dims = {2, 1}}}, scalar = {{x = {}, dims = {}}}, smooth = true,
  expect = {{{x = {{1, 2}, {3, 4}}, dims = {-1, 1}}, {{1, 3}, {2, 4}}}},
}
