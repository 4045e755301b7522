--- Loader: batches of a dataset, in order or shuffled anew every epoch.
--
--   for x, y in loader:batches() do ... end        #loader is the number of batches

local ag = require "argand"
local core = require "argand.core"
local class = require "argand.class"
local options = require "argand.options"
local dataset_of = require "argand.data.dataset"

---@class argand.data.LoaderOptions
---@field batch_size? integer default 1
---@field shuffle? boolean
---@field seed? integer
---@field drop_last? boolean leaves out a last batch that is not full
---@field shard? integer[] {rank, size}: every size-th sample of the order, from the one at rank + 1 on
---@field collate? fun(samples: any[][]): ...
---@field transform? fun(...): ...

---@class argand.data.Loader
local Loader = class "Loader"

local function is_whole(value, low, high)
  return options.is_between(value, low, high) and value == math.floor(value)
end

-- rank and number of ranks of the option `shard`.
local function read_shard(read)
  local shard = read.shard
  if not shard then return 0, 1 end
  local rank, size = shard[1], shard[2]
  if not is_whole(size, 1, 2 ^ 31) or not is_whole(rank, 0, size - 1) then
    core.raise("value", "Loader", ("shard: expected {rank, size} with a rank of 0 to size - 1, got {%s, %s}"):format(
      tostring(rank), tostring(size)), "shard = {dist.rank(), dist.size()}")
  end
  if read.shuffle and not read.seed then
    core.raise("option", "Loader", "shard: ranks that shuffle need the same seed", "add seed = a number")
  end
  return rank, size
end

--- `seed` fixes the order of all epochs; without it the default generator decides. `collate(samples)` makes
--- the values of a batch from a list of lists of values; `transform(...)` replaces the values of every batch.
---
--- `shard = {rank, size}` with rank 0 .. size - 1 divides every epoch among the ranks of a job, all of which give the
--- same seed. The n-th batches of all ranks together hold what the n-th batch of one loader with a batch_size that is
--- `size` times as large would; where samples do not divide evenly, the first ranks have one more.
---@param dataset table|userdata
---@param opts? argand.data.LoaderOptions
function Loader:init(dataset, opts)
  dataset_of.require_dataset("Loader", dataset)
  local read = options.read("Loader", opts, {
    batch_size = 1, shuffle = false, drop_last = false, seed = options.optional.number,
    collate = options.optional["function"], transform = options.optional["function"], shard = options.optional.table,
  })
  if not is_whole(read.batch_size, 1, 2 ^ 53) then
    core.raise("value", "Loader", "batch_size: expected a whole number >= 1, got " .. read.batch_size)
  end
  if read.collate and dataset.select then
    core.raise("option", "Loader", "collate: the dataset makes its own batches", "use transform")
  end
  self.dataset, self.batch_size, self.shuffle = dataset, read.batch_size, read.shuffle
  self.drop_last, self.collate, self.transform = read.drop_last, read.collate, read.transform
  self.generator = read.seed and ag.generator(read.seed) or nil
  self.rank, self.num_ranks = read_shard(read)
end

-- The number of samples of this shard in an epoch.
local function num_samples(self)
  return math.max(0, math.ceil((dataset_of.length_of(self.dataset) - self.rank) / self.num_ranks))
end

function Loader:__len()
  local count = num_samples(self) / self.batch_size
  return self.drop_last and math.floor(count) or math.ceil(count)
end

-- Values of the same place of all samples as one tensor: tensors are stacked, numbers become f32, booleans
-- bool.
local function stack_values(values)
  if core.is_tensor(values[1]) then return ag.stack(values) end
  local kind = type(values[1])
  if kind == "number" or kind == "boolean" then return ag.tensor(values) end
  core.raise("argument", "Loader", ("samples: expected tensors, numbers or booleans, got a %s"):format(kind),
    "give the loader collate = function(samples)")
end

local function default_collate(samples)
  local columns = {}
  for place = 1, #samples[1] do
    local values = {}
    for position, sample in ipairs(samples) do values[position] = sample[place] end
    columns[place] = stack_values(values)
  end
  return unpack(columns)
end

-- The positions of this shard in an epoch, i64 [num_samples]; nil for all samples in their order.
local function order_of(self)
  local length = dataset_of.length_of(self.dataset)
  local order = self.shuffle and ag.randperm(length, { dtype = "i64", generator = self.generator }) or nil
  if self.num_ranks == 1 then return order end
  local places = ag.arange(self.rank + 1, length + 1, self.num_ranks, { dtype = "i64" })
  return order and order:index_select(1, places) or places
end

-- Returns fetch(start, count) -> values of a batch, for one epoch.
local function fetch_many(self, order)
  local dataset = self.dataset
  if order then
    return function(start, count) return dataset:select(order:narrow(1, start, count)) end
  end
  if dataset.range then
    return function(start, count) return dataset:range(start, count) end
  end
  return function(start, count)
    return dataset:select(ag.arange(start, start + count, { dtype = "i64" }))
  end
end

local function fetch_one_by_one(self, order)
  local dataset, collate = self.dataset, self.collate or default_collate
  local positions = order and order:tolist()
  return function(start, count)
    local samples = {}
    for position = start, start + count - 1 do
      samples[#samples + 1] = { dataset:get(positions and positions[position] or position) }
    end
    return collate(samples)
  end
end

--- Returns an iterator over the batches of one epoch: the values of the dataset, stacked along dim 1.
---@return fun(): ...
function Loader:batches()
  local length, batch_size, transform = num_samples(self), self.batch_size, self.transform
  local order = order_of(self)
  local fetch = self.dataset.select and fetch_many(self, order) or fetch_one_by_one(self, order)
  local last = self.drop_last and length - length % batch_size or length
  local start = 1 - batch_size
  return function()
    start = start + batch_size
    if start > last then return nil end
    local count = math.min(batch_size, last - start + 1)
    if transform then return transform(fetch(start, count)) end
    return fetch(start, count)
  end
end

return Loader
