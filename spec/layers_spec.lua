--- layers: who may include whom, where the preprocessor may decide, how long a file may be, and that each says what it is for.
local cases = require "support.cases"

local root = debug.getinfo(1, "S").source:match "^@(.*)spec/layers_spec%.lua$" or ""
if root == "" then root = "./" end

-- What a folder may include, by the first part of the include path or by its folder; its own folder is always among them. "argand.h" is the
-- public header: a source of the layers below core does not know it.
local layers = {
  {folder = "engine/platform", may = {}},
  {folder = "engine/core", may = {"argand.h", "platform"}},
  {folder = "engine/ops", may = {"argand.h", "platform", "core"}},
  {folder = "engine/backend", may = {"argand.h", "platform", "core", "ops"}},
  {folder = "engine/exec", may = {"argand.h", "platform", "core", "ops", "backend"}},
  {folder = "engine/autograd", may = {"argand.h", "platform", "core", "ops", "backend", "exec"}},
  {folder = "engine/dist/algorithm", may = {"argand.h", "platform", "core", "dist/algorithm"}},
  {folder = "engine/dist/simulator", may = {"argand.h", "platform", "core", "dist/algorithm", "dist/simulator"}},
  {folder = "engine/dist/transport", may = {"argand.h", "platform", "core", "dist/algorithm", "dist/transport", "dist/transport/shm",
                                            "dist/transport/zmq", "zmq.h"}},
  {folder = "engine/dist/group", may = {"argand.h", "platform", "core", "dist/algorithm", "dist/transport", "dist/transport/shm",
                                        "dist/transport/zmq", "dist/group"}},
  {folder = "engine/dist/ddp", may = {"argand.h", "platform", "core", "ops", "backend", "exec", "autograd", "dist/algorithm",
                                      "dist/transport", "dist/group", "dist/ddp"}},
  {folder = "engine/dist", may = {"argand.h", "platform", "core", "ops", "backend", "exec", "autograd"}},
  {folder = "engine/io", may = {"argand.h", "platform", "core", "ops", "backend", "exec", "autograd"}},
  {folder = "engine/api", may = {"argand.h", "platform", "core", "ops", "backend", "exec", "autograd", "dist", "io"}},
  {folder = "lua/binding", may = {"argand.h"}},
  {folder = "lua/bin", may = {"argand.h"}},
}

-- A conditional outside platform/ and backends/*/simd needs a reason here.
local conditionals = {
  ["engine/include/argand.h"] = "compiled by other people's compilers, C++ too",
}

local function lines_of(path)
  local list = {}
  for line in assert(io.open(root .. path)):lines() do list[#list + 1] = line end
  return list
end

-- Paths from the root of all files below the folders whose name has one of the endings.
local function find_files(folders, endings)
  local found = {}
  local names = {}
  for i, ending in ipairs(endings) do names[i] = ("-name '*.%s'"):format(ending) end
  local command = ("cd '%s' && find %s -type f \\( %s \\) | sort"):format(root, folders, table.concat(names, " -o "))
  local pipe = assert(io.popen(command))
  for path in pipe:lines() do found[#found + 1] = path end
  pipe:close()
  return found
end

local function set(list)
  local result = {}
  for _, value in ipairs(list) do result[value] = true end
  return result
end

-- The set of what the source at path may include, and the name of its layer.
local function allowed_for(path)
  for _, layer in ipairs(layers) do
    if path:sub(1, #layer.folder + 1) == layer.folder .. "/" then
      local allowed = set(layer.may)
      allowed[layer.folder:match "[^/]+$"] = true
      return allowed, layer.folder
    end
  end
  local name = path:match "^backends/([^/]+)/"
  if name then
    -- Of the backend layer only the one vtable.
    return set {"argand.h", "platform", "core", "ops", "backend/backend.h", "common", name}, "backends/" .. name
  end
end

local sources = find_files("engine backends lua/binding lua/bin", {"c", "h", "inc", "def"})

describe("the layers", function()
  it("include downwards only", function()
    local check = cases.begin()
    for _, path in ipairs(sources) do
      local allowed, layer = allowed_for(path)
      if allowed then
        check(path, function()
          for number, line in ipairs(lines_of(path)) do
            local target = line:match '^%s*#%s*include%s*"([^"]+)"'
            if target then
              local is_beside = layer:find "^lua/" and not target:find "/"
              local first, folder = target:match "^[^/]+", target:match "^(.*)/"
              if not (is_beside or allowed[first] or allowed[folder or ""] or allowed[target]) then
                error(("line %d: %s may not include %s"):format(number, layer, target), 0)
              end
            end
          end
        end)
      end
    end
    check.done()
  end)

  it("know Lua in lua/ only", function()
    local check = cases.begin()
    for _, path in ipairs(find_files("engine backends", {"c", "h", "inc", "def"})) do
      check(path, function()
        for number, line in ipairs(lines_of(path)) do
          if line:find '^%s*#%s*include%s*[<"]l[ua][ua]' then error(("line %d: %s"):format(number, line), 0) end
        end
      end)
    end
    check.done()
  end)

  it("leave conditionals to platform and simd", function()
    local check = cases.begin()
    for _, path in ipairs(sources) do
      local is_exempt = path:find "^engine/platform/" or path:find "^backends/[^/]+/simd/" or conditionals[path]
      if not is_exempt then
        check(path, function()
          local lines = lines_of(path)
          for number, line in ipairs(lines) do
            local word, rest = line:match "^%s*#%s*(%l+)%s*(.*)$"
            if word == "if" or word == "ifdef" or word == "ifndef" then
              local is_guard = word == "ifndef" and lines[number + 1] == "#define " .. rest
              if not is_guard then error(("line %d: %s"):format(number, line), 0) end
            end
          end
        end)
      end
    end
    check.done()
  end)
end)

describe("every source file", function()
  local files = find_files("engine backends lua spec examples", {"c", "h", "inc", "def", "lua", "sh", "py"})

  it("has at most 800 lines", function()
    local check = cases.begin()
    for _, path in ipairs(files) do
      check(path, function() assert.is_true(#lines_of(path) <= 800) end)
    end
    check.done()
  end)

  it("says in its first line what it is for", function()
    local check = cases.begin()
    for _, path in ipairs(files) do
      check(path, function()
        local lines = lines_of(path)
        local first = lines[1] or ""
        if first:find "^#!" then first = lines[2] or "" end
        local words = first:match "^/%*+ (.+)" or first:match "^// (.+)" or first:match "^%-%-+ (.+)" or first:match "^# (.+)"
          or first:match '^"""(.+)'
        if not (words and #words >= 15) then error("line 1: " .. first, 0) end
      end)
    end
    check.done()
  end)
end)
